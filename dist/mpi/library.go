//go:build linux && (mpi || cuda)

package mpi

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"unsafe"

	"github.com/ebitengine/purego"

	"github.com/lorafuse/lorafuse/dist"
)

// library is a loaded MPI library: the functions that a World needs and the constants that
// differ between ABIs.
type library struct {
	path    string
	version string // path, name and version
	abi

	initThread    func(argc, argv uintptr, required int32, provided *int32) int32
	finalize      func() int32
	commRank      func(comm handle, rank *int32) int32
	commSize      func(comm handle, size *int32) int32
	commSplit     func(comm handle, color, key int32, part *handle) int32
	setErrhandler func(comm, handler handle) int32
	errorString   func(code int32, text *byte, n *int32) int32
	getVersion    func(text *byte, n *int32) int32
	isend         func(data unsafe.Pointer, n int32, datatype handle, dest, tag int32, comm handle, request *handle) int32
	irecv         func(data unsafe.Pointer, n int32, datatype handle, source, tag int32, comm handle, request *handle) int32
	test          func(request *handle, done *int32, status *status) int32
	getCount      func(status *status, datatype handle, n *int32) int32
	abort         func(comm handle, code int32) int32
	exit          func(status int32) // of libc
}

// handle is an MPI handle of any ABI: a pointer, or an int in its lower half.
type handle uintptr

// status holds an MPI_Status of any ABI; the largest has 32 bytes.
type status [64]byte

// abi holds the constants of an ABI.
type abi struct {
	world, bytes, errorsReturn handle
	funneled                   int32 // MPI_THREAD_FUNNELED
}

var (
	mpich    = abi{world: 0x44000000, bytes: 0x4c00010d, errorsReturn: 0x54000001, funneled: 1}
	standard = abi{world: 0x101, bytes: 0x247, errorsReturn: 0x143, funneled: 1024}
)

// File names of libraries, those of Debian's MPICH included.
var (
	openMPINames  = []string{"libmpi.so.40"}
	standardNames = []string{"libmpi_abi.so.1", "libmpi_abi.so.0"}
	mpichNames    = []string{"libmpi.so.12", "libmpich.so.12"}
)

// override is the environment variable that has the path of the library.
const override = "LORAFUSE_LIBMPI"

// candidates returns the libraries to try: those of the launcher first, and each one in
// the folder of the launcher before the folders of the dynamic linker.
func candidates(openMPI bool) (paths []string) {
	if path := os.Getenv(override); path != "" {
		return []string{path}
	}
	families := [][]string{mpichNames, standardNames, openMPINames}
	if openMPI {
		families = [][]string{openMPINames, standardNames, mpichNames}
	}
	parent, _ := os.Readlink(fmt.Sprintf("/proc/%d/exe", os.Getppid()))
	for _, names := range families {
		for _, name := range names {
			if path := filepath.Join(filepath.Dir(filepath.Dir(parent)), "lib", name); exists(path) {
				paths = append(paths, path)
			}
			paths = append(paths, name)
		}
	}
	return paths
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// load opens the MPI library for a launch.
func load(launch *dist.Launch) (*library, error) {
	var failures []string
	for _, path := range candidates(launch.OpenMPI) {
		so, err := purego.Dlopen(path, purego.RTLD_NOW|purego.RTLD_GLOBAL)
		if err == nil {
			return link(path, so)
		}
		failures = append(failures, err.Error())
	}
	return nil, fmt.Errorf("%v, but no MPI library can be loaded (set %s to the path of the launcher's libmpi): %s", launch, override, strings.Join(failures, "; "))
}

// link finds the functions of an open library.
func link(path string, so uintptr) (*library, error) {
	l := &library{path: path}
	var missing []string
	symbol := func(name string) uintptr {
		p, err := purego.Dlsym(so, name)
		if err != nil {
			missing = append(missing, name)
		}
		return p
	}
	resolved, err := filepath.EvalSymlinks(path)
	if err != nil {
		resolved = path // a name that the dynamic linker has found
	}
	if world, err := purego.Dlsym(so, "ompi_mpi_comm_world"); strings.HasPrefix(filepath.Base(resolved), "libmpi_abi.") {
		l.abi = standard
	} else if err == nil {
		l.abi = abi{world: handle(world), bytes: handle(symbol("ompi_mpi_byte")), errorsReturn: handle(symbol("ompi_mpi_errors_return")), funneled: 1}
	} else {
		l.abi = mpich
	}
	for name, f := range map[string]any{
		"MPI_Init_thread": &l.initThread, "MPI_Finalize": &l.finalize, "MPI_Abort": &l.abort,
		"MPI_Comm_rank": &l.commRank, "MPI_Comm_size": &l.commSize, "MPI_Comm_split": &l.commSplit,
		"MPI_Comm_set_errhandler": &l.setErrhandler, "MPI_Error_string": &l.errorString, "MPI_Get_library_version": &l.getVersion,
		"MPI_Isend": &l.isend, "MPI_Irecv": &l.irecv, "MPI_Test": &l.test, "MPI_Get_count": &l.getCount, "exit": &l.exit,
	} {
		if p := symbol(name); p != 0 {
			purego.RegisterFunc(f, p)
		}
	}
	if len(missing) > 0 {
		return nil, fmt.Errorf("%s is no MPI library: it lacks %s", path, strings.Join(missing, ", "))
	}
	return l, nil
}

// check returns the error that a call of an MPI function has returned.
func (l *library) check(function string, code int32) error {
	if code == 0 {
		return nil
	}
	text, n := make([]byte, maxText), int32(0)
	if l.errorString(code, &text[0], &n) != 0 {
		return fmt.Errorf("%s: MPI error %d", function, code)
	}
	// MPICH returns a stack, whose last line is the cause.
	lines := strings.Split(strings.TrimSpace(string(text[:n])), "\n")
	return fmt.Errorf("%s: %s", function, lines[len(lines)-1])
}

// maxText is more than the length of a string that any MPI library returns.
const maxText = 1 << 14

// describe returns the path and the version of the library.
func (l *library) describe() string {
	text, n := make([]byte, maxText), int32(0)
	if l.getVersion(&text[0], &n) != 0 {
		return l.path
	}
	line, _, _ := strings.Cut(string(text[:n]), "\n")
	line, _, _ = strings.Cut(line, ",") // Open MPI goes on with its package
	return fmt.Sprintf("%s (%s)", l.path, strings.Join(strings.Fields(line), " "))
}
