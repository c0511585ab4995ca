"""New processes without the seconds that a new interpreter spends on its imports."""
