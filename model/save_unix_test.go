//go:build unix

package model

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"
)

// A saved model has the rights that the umask leaves, as all files of the user.
func TestSaveUmask(t *testing.T) {
	dir := t.TempDir()
	defer syscall.Umask(syscall.Umask(0o007))
	if err := Save(dir, testWeights(testConfig()), new(Metadata)); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{weightsFile, metadataFile, configFile} {
		info, err := os.Stat(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		if got := info.Mode(); got != 0o660 {
			t.Errorf("%s: got %v, want -rw-rw----", name, got)
		}
	}
}
