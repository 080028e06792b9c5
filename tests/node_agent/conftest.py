from hypothesis import settings

settings.register_profile("outrider", deadline=None)  # a busy machine is no fault of the code
settings.load_profile("outrider")
