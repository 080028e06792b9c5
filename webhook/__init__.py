"""Mutating admission for training pods.

``mutate`` is the pure core: a pod in, a JSON patch and warnings out. ``admission`` speaks AdmissionReview, ``policies``
chooses the TrainingPolicy, ``certificates`` decides what TLS needs next; ``rotation``, ``serving`` and ``app`` are the
rim that talks to the API server.
"""
