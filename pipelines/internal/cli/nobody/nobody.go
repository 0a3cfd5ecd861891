// Package nobody lets a program run as a user of whom /etc/passwd says nothing, as in
// a container of Kubernetes. Beam asks for the user's name where it is initialised, and
// without an answer a nil pointer there ends the program. This package needs the standard
// library alone and its path comes before those of gRPC, on which Beam waits, so Go
// initialises it first.
package nobody

import (
	"fmt"
	"os"
	"os/user"
)

func init() {
	// Without cgo the environment answers where /etc/passwd does not; the answer is kept.
	for name, value := range map[string]string{"USER": "nobody", "HOME": "/"} {
		if os.Getenv(name) == "" {
			os.Setenv(name, value)
			defer os.Unsetenv(name)
		}
	}
	if _, err := user.Current(); err != nil {
		fmt.Fprintf(os.Stderr, "linnet: %v: add it to /etc/passwd, or build with -tags osusergo (-tags cuda,osusergo)\n", err)
		os.Exit(1) // the environment ends, too
	}
}
