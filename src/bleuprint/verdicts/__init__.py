"""From claimed and measured numbers to a verdict: claims and curves as data, rules, and the statistics between."""
