"""What trainings take, before and after: parameters, updates, FLOPs, hours and memory."""
