"""The live stage: one component that draws a Run as it grows."""
