"""How such an application is tested: no worker, no other thread, no other database."""

from __future__ import annotations

from django.test import TestCase
from jobs import app

from orders.models import Order
from orders.tasks import charge_order
from perdure.testing import jumping


class OrderTest(TestCase):
    def test_an_order_is_charged(self) -> None:
        """TestCase never commits, so Django has to be told to act as if: captureOnCommitCallbacks."""
        with jumping(app) as env:
            with self.captureOnCommitCallbacks(execute=True):
                response = self.client.post("/orders", {"item": "cup"})
                self.assertEqual(env.enqueued(), [])  # not before the commit
            self.assertEqual(response.status_code, 202)
            self.assertEqual([job.payload for job in env.enqueued(charge_order)], [response.json()["id"]])
            env.run()
        self.assertTrue(Order.objects.get().charged)  # the job saw the order that was never committed

    def test_a_refused_order_leaves_nothing(self) -> None:
        with jumping(app) as env, self.captureOnCommitCallbacks(execute=True):
            response = self.client.post("/orders", {})
            self.assertEqual(response.status_code, 400)
            self.assertEqual(env.enqueued(), [])
        self.assertFalse(Order.objects.exists())

    def test_charging_twice_is_harmless(self) -> None:
        order = Order.objects.create(item="cup")
        with jumping(app):
            self.assertTrue(app.enqueue(charge_order, order.id).result())
            self.assertFalse(app.enqueue(charge_order, order.id).result())
