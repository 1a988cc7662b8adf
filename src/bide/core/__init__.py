"""The pure middle: values in, values out. No async, clock, chance, logging or I/O in here."""
