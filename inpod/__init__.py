"""Runs inside training pods; standard library only, Python 3.8 and later.

``install`` runs in the init container and copies the rest into the pod's ``/outrider/py``, which the webhook puts in
front of PYTHONPATH: ``sitecustomize`` as it is, ``runtime`` under the name ``outrider_inpod``.
"""
