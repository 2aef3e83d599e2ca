"""A trained run on a user's own text, by torch or as a model of CTranslate2."""
