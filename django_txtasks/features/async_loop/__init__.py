"""Async tasks on one event loop: ``runworkers --async-tasks``. Without that option nothing imports this folder.

* ``slots``: the tasks on the loop, as the turns see them; ``policy``: the size of their claims
* ``exchange``: the attempts between the thread of the turns and that of the loop
* ``event_loop``: the thread of the loop; ``attempts``: one attempt on the loop
* ``children``: asyncio tasks that an attempt starts; ``lag``: notices a task that blocks the loop
* ``watch``: the look at the loop and its threads once a second
* ``stuck``: the end of a process whose loop does not turn, or whose task ignores its cancel
* ``executors`` and ``shared_threads``: the sync code of async tasks, in a few threads; ``open_cursors``: whether a
  call has left a cursor open; ``default_executor``: the threads of other calls, such as DNS look-ups;
  ``left_calls``: calls there that outlive their attempts
"""
