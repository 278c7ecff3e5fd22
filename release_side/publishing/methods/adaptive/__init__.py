"""Adaptive margins: one-way tables first, then tables of the pairs of columns that noisy scores show to be related.

A release is made in rounds. Which tables a round measures follows from public facts and from the noisy answers of earlier rounds.
The rule follows MST and AIM (McKenna, Miklau & Sheldon 2021; McKenna, Mullins, Sheldon & Miklau 2022): score, then measure.

method            the method: what users choose, and what is refused before private rows are read
shares_of_rounds  which rounds there are, the share of the budget that each one and each one-way table has, and how many numbers
                  with noise rounds may draw
rounds            the rounds of one release: what has been measured, and what is measured next
choice_of_pairs   which pairs of columns are expected to be worth the noise of their tables
"""
