"""The course application: retrieval, prompts, budget, conversations, and the factory of the app."""
