"""The HTTP door: mail and batches of campaigns as JSON, steering of campaigns, the suppression list. A process of its
own (`server`); what it answers is described by config/openapi.json, which is made from `app`.
"""
