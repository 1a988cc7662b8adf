"""One module for each group of commands. They import what they need when they are called, so that help is quick."""
