//! What processes cost: processor time, waiting for processors, memory and network, as Linux tells it.
