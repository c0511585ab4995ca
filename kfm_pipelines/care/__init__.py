"""CARE: who decides about sensitive places, and what may be published of them."""
