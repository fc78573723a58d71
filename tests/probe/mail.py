"""A mail server that cannot be reached at first."""

from django.core.mail.backends.locmem import EmailBackend


class AwayAtFirst(EmailBackend):
    """Refuses twice, then delivers."""

    calls = 0

    def send_messages(self, messages):
        type(self).calls += 1
        if self.calls < 3:
            raise ConnectionRefusedError("the mail server is away")
        return super().send_messages(messages)
