"""What a model is worth: metrics, calibration and importance of columns, each with an error bar."""
