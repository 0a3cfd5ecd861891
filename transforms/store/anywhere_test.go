package store

import (
	"errors"
	"os"
	"strings"
	"sync"
	"testing"
	"time"
)

// What Windows alone makes hard; every system keeps to it.

// The first byte of a lock is what Windows locks: nobody else reads or writes it.
func TestAnywhereLock(t *testing.T) {
	dir := t.TempDir()
	uri := dir + "/_lock"
	unlock, err := local{}.Lock(t.Context(), uri)
	if err != nil {
		t.Fatal(err)
	}
	if text, err := os.ReadFile(uri); err != nil || !strings.HasPrefix(string(text), "\x00process ") {
		t.Errorf("the lock holds %q, %v", text, err)
	}
	if err := unlock(); err != nil {
		t.Error(err)
	}
	if _, err := (local{}).Lock(t.Context(), uri+"/x/_lock"); err == nil || strings.Count(err.Error(), "; choose a folder that can be written to") != 1 {
		t.Errorf("below a file: %v", err)
	}
}

// On Windows a file that is open cannot be deleted.
func TestAnywhereDelete(t *testing.T) {
	uri := t.TempDir() + "/x"
	if err := os.WriteFile(uri, nil, 0o666); err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(uri)
	if err != nil {
		t.Fatal(err)
	}
	time.AfterFunc(50*time.Millisecond, func() { f.Close() })
	if err := (local{}).Delete(t.Context(), uri); err != nil {
		t.Error(err)
	}
}

// On Windows a file cannot be opened in the moment in which another takes its place.
func TestAnywhereReplaced(t *testing.T) {
	dir := t.TempDir()
	uri, s := dir+"/x", local{tempDir: dir}
	if err := s.Write(t.Context(), uri, []byte("x")); err != nil {
		t.Fatal(err)
	}
	var wait sync.WaitGroup
	wait.Go(func() {
		for range 300 {
			if err := s.Write(t.Context(), uri, []byte("x")); err != nil {
				t.Error(err)
			}
		}
	})
	for range 300 {
		if text, err := s.Read(t.Context(), uri, 0); !errors.Is(err, ErrChanged) && (err != nil || string(text) != "x") {
			t.Errorf("got %q, %v", text, err)
		}
	}
	wait.Wait()
}
