"""Learning between parties who do not show each other their data."""
