"""A small picture, as providers put one beside a scene."""

import io
import random


def small_picture(chance: random.Random) -> bytes:
    """Returns a JPEG of fields in invented colours."""
    from PIL import Image

    size, fields = 64, 8
    picture = Image.new("RGB", (fields, fields))
    picture.putdata(
        [(chance.randint(60, 140), chance.randint(90, 180), chance.randint(40, 90)) for _ in range(fields**2)]
    )
    target = io.BytesIO()
    picture.resize((size, size), Image.Resampling.NEAREST).save(target, "JPEG", quality=80)
    return target.getvalue()
