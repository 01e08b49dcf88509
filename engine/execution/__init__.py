"""Running one scheduled step on a device: batch preparation, forward, sampling."""
