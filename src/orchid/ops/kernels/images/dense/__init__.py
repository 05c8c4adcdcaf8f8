"""Small images in one kernel forward: every convolution and every transform is one product."""
