"""What a call costs on the device, one file per effect."""
