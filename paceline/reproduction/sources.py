"""The publications that the studies reproduce."""

from __future__ import annotations

LIANG = (
    "Z. Liang, “Parallelization of Multi-Layer Perceptron and Long-Short Term Memory on Elgato”, University of "
    "Arizona, 2017"
)
MULLAPUDI = "S. V. Mullapudi, “Distributed Deep Neural Networks”, University of Texas at Austin, 2017"
WUENSCHE = (
    "J. Wünsche, “A Beginners Guide to Performance Factors of Machine Learning Applications with Focus on Neural Nets "
    "and Deep Learning”, Otto-von-Guericke University Magdeburg, 2018"
)
IMRAN = "M. Imran, “Per Layer Time Computation of CNN Training with TensorFlow”, Politecnico di Milano, 2018"
