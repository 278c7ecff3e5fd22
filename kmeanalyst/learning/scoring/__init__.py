"""What a model is worth: metrics, each with an error bar."""
