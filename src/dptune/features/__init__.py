"""Features of pictures: public backbones, and what makes files of features with them."""
