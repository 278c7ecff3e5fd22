"""What a measurement says of populations: the weights of the best answers, and the joint errors of all answers."""
