package store

import (
	"bytes"
	"context"
	"io/fs"
	"path"
	"time"
)

// maxModelFile bounds a file of Sub, in bytes.
const maxModelFile = 2 << 30

func (g *gs) sub(ctx context.Context, uri string) (fs.FS, error) {
	if _, _, err := splitGS(uri); err != nil {
		return nil, err
	}
	return gsFS{ctx, g, uri}, nil
}

// gsFS is a prefix as a file system of files without folders.
type gsFS struct {
	ctx    context.Context
	gs     *gs
	prefix string
}

func (f gsFS) ReadFile(name string) ([]byte, error) {
	if !fs.ValidPath(name) || name == "." {
		return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrInvalid}
	}
	return f.gs.Read(f.ctx, Join(f.prefix, name), maxModelFile)
}

// Stat asks for the size alone, for fs.Stat would read the whole file.
func (f gsFS) Stat(name string) (fs.FileInfo, error) {
	if !fs.ValidPath(name) || name == "." {
		return nil, &fs.PathError{Op: "stat", Path: name, Err: fs.ErrInvalid}
	}
	uri := Join(f.prefix, name)
	o, err := f.gs.object(uri)
	if err != nil {
		return nil, err
	}
	attrs, err := o.Attrs(f.ctx)
	if err != nil {
		return nil, errGS(uri, err)
	}
	if attrs.ContentEncoding == "gzip" { // it is unpacked on the way, and its size is not known before
		file, err := f.Open(name)
		if err != nil {
			return nil, err
		}
		return file.Stat()
	}
	return gsInfo{path.Base(name), gsObject(o.BucketName(), attrs, false)}, nil
}

// gsInfo describes an object as a file.
type gsInfo struct {
	name   string
	object Object
}

func (i gsInfo) Name() string       { return i.name }
func (i gsInfo) Size() int64        { return i.object.Size }
func (i gsInfo) Mode() fs.FileMode  { return 0o444 }
func (i gsInfo) ModTime() time.Time { return i.object.Modified }
func (i gsInfo) IsDir() bool        { return false }
func (i gsInfo) Sys() any           { return nil }

func (f gsFS) Open(name string) (fs.File, error) {
	data, err := f.ReadFile(name)
	if err != nil {
		return nil, err
	}
	return memFile{bytes.NewReader(data), gsInfo{path.Base(name), Object{Size: int64(len(data))}}}, nil
}

// memFile is an open file.
type memFile struct {
	*bytes.Reader
	info gsInfo
}

func (f memFile) Close() error               { return nil }
func (f memFile) Stat() (fs.FileInfo, error) { return f.info, nil }
