"""A choice as buttons: a person presses *Approve* or *Refuse*, and this sends the form."""

from __future__ import annotations

from typing import Any

from django import forms
from django.utils.html import format_html, format_html_join


class Buttons(forms.RadioSelect):
    """A widget for one ``ChoiceField`` of a form: each choice is a button that sends the form with this choice.

    A choice that is suggested, or that was pressed before, is emphasised. The key Enter in another field presses
    none of them: if the field is required, the form asks for it.
    """

    def use_required_attribute(self, initial: Any) -> bool:
        """Return False: HTML has no such attribute for buttons."""
        return False

    def render(self, name: str, value: Any, attrs: Any = None, renderer: Any = None) -> Any:
        """Return the buttons."""
        chosen: Any = self.format_value(value)
        buttons = format_html_join(
            "\n",
            '<button name="{}" value="{}" class="{}">{}</button>',
            (
                (name, one["value"], "txp-main" if one["selected"] else "", one["label"])
                for one in self.options(name, chosen)
                if one["value"] != ""
            ),
        )
        return format_html('<div class="txp-line">{}</div>', buttons)


def has_buttons(form: Any) -> bool:
    """Return True if a field of this form is buttons, so that the page needs no button of its own."""
    return any(isinstance(one.widget, Buttons) for one in form.fields.values())
