"""A backbone that has seen nothing real: pictures from random processes, and a WideResNet that
learns from them without labels (Baradad et al. 2021, "Learning to See by Looking at Noise"; Tang
et al. 2023, "Differentially Private Image Classification by Learning Priors from Random
Processes").

Theirs: 105,000 pictures of one process, 200 epochs in batches of 256, group normalisation, and
4,096 features from a hidden layer over the whole last map. Here: more pictures of four processes,
fewer epochs in larger batches, batch normalisation settled on unchanged pictures, and the features
that every backbone offers: 256 pooled, or 4,096 of the last map in 4 x 4 squares (`grid4`). Loss,
rate, momentum, decay, crops and colours are as theirs.
"""
