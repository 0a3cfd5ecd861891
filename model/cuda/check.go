package cuda

import "time"

// Checked is what Check computed.
type Checked struct {
	Sum     float32   // of x
	Product []float32 // a·b, [m, n], row-major
	// First and Tenth are the times of the first and of the tenth launch of the
	// product, until it was done. The first includes what the driver initialises lazily.
	First, Tenth time.Duration
	// Differ says that not all launches computed the same bits.
	Differ bool
}
