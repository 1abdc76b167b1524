"""Files of the web page, served as they are: no build step makes them."""
