"""A backbone that has seen nothing real: pictures from random processes, and a WideResNet that
learns from them without labels (Baradad et al. 2021, "Learning to See by Looking at Noise"; Tang
et al. 2023, "Differentially Private Image Classification by Learning Priors from Random
Processes").
"""
