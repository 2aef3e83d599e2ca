"""Fuzz the reader of params.yaml, down to the strict models."""

import atheris
from harness import ROOT, fuzz, scratch

with atheris.instrument_imports(include=["bleuprint", "ruamel"]):
    from bleuprint.graph import load_params
    from bleuprint.strict import read_yaml

PARAMS = scratch() / "params.yaml"


def small() -> bytes:
    """Return params.yaml as short as it can be: nothing but the toy table."""
    import io

    from ruamel.yaml import YAML

    yaml = YAML(typ="safe", pure=True)
    data = yaml.load(ROOT / "params.yaml")
    run = {"experiment": "toy", "seed": 1, "dataset": "toy", "corpus": "toy-words", "model": "transformer"}
    data |= {
        "table": "demo",
        "inputs": {"datasets": {"toy": {"module": "toy"}}, "corpora": {"toy-words": {"dataset": "toy"}}},
        "trainings": {"toy-1": run},
        "runs": {"toy-1": {**run, "recipe": "toy", "trained": "toy-1"}},
    }
    for section, name in (("datasets", "toy"), ("corpora", "toy-words"), ("experiments", "toy")):
        data[section] = {name: data[section][name]}
    buffer = io.StringIO()
    yaml.default_flow_style = True
    yaml.dump(data, buffer)
    return buffer.getvalue().encode()


SEEDS = (
    small(),
    b"a: !!python/object/apply:os.system [exit]\n",
    b"a: &a [1]\nb: *a\n<<: {c: 2020-13-45}\n",
    b"a: 0o7\nb: .inf\nc: 1e-05\nd: [~, 'x', \"\\x41\"]\n? {e: f}\n: |\n  g\n",
)


def read(data: bytes) -> None:
    PARAMS.write_bytes(data)
    try:
        load_params(PARAMS)
    finally:
        if data.startswith(b"a"):
            read_yaml(PARAMS)


if __name__ == "__main__":
    fuzz("params.yaml", read, SEEDS)
