"""What the report tells beside verdicts: tables, figures, the page, the register of deviations, model cards."""
