"""What is proved, by subject."""
