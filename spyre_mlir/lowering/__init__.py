"""From placed operations to designs of a bundle."""
