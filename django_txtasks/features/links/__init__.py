"""Links from tasks to the business objects that they are about, such as orders.

* ``subjects``: from an object to the text that its links have
* ``rows``: the rows of links, written in the transaction of the task
* ``reading``: ``tasks_of()``, and the state of a task as an expression of a query
* ``details``: ``TaskDetails``, the base class of tables with columns of your own
"""
