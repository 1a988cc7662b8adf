"""The loops: they ask a provider or an outside API, judge by the core's rules, wait, and go round."""
