"""Where torch computes."""

import torch

from bleuprint.params import Machine


def find_device(machine: Machine) -> torch.device:
    """Return the device of params.yaml; ValueError where cuda is asked for and torch finds none."""
    available = torch.cuda.is_available()
    if machine.device == "cuda" and not available:
        raise ValueError("machine.device is cuda, but torch finds no GPU; valid here: auto, cpu")
    return torch.device("cuda" if available and machine.device != "cpu" else "cpu")
