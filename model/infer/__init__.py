"""NumPy evaluation of exported trees and LSTMs: all that advice needs of a trained model."""
