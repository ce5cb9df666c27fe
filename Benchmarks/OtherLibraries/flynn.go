// Seals and opens with flynn/noise, for tools/report. Reads lines with a message size and a number of
// repetitions, and answers each line with the nanoseconds of processor time for one seal and one open.
package main

import (
	"bufio"
	"bytes"
	"crypto/rand"
	"fmt"
	"os"
	"runtime"
	"syscall"
	"unsafe"

	"github.com/flynn/noise"
)

// The processor time of this thread, to which the goroutine is locked. The time of the garbage
// collector's threads is not included.
func threadTime() int64 {
	const clockThread = 3 // CLOCK_THREAD_CPUTIME_ID
	var time syscall.Timespec
	_, _, errno := syscall.Syscall(
		syscall.SYS_CLOCK_GETTIME, clockThread, uintptr(unsafe.Pointer(&time)), 0)
	if errno != 0 {
		panic(errno)
	}
	return time.Nano()
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}

// The sending and the receiving cipher state for messages from the initiator, after a handshake NN.
func pair() (*noise.CipherState, *noise.CipherState) {
	suite := noise.NewCipherSuite(noise.DH25519, noise.CipherChaChaPoly, noise.HashSHA256)
	config := noise.Config{CipherSuite: suite, Random: rand.Reader, Pattern: noise.HandshakeNN}
	config.Initiator = true
	initiator, err := noise.NewHandshakeState(config)
	check(err)
	config.Initiator = false
	responder, err := noise.NewHandshakeState(config)
	check(err)
	message, _, _, err := initiator.WriteMessage(nil, nil)
	check(err)
	_, _, _, err = responder.ReadMessage(nil, message)
	check(err)
	message, opening, _, err := responder.WriteMessage(nil, nil)
	check(err)
	_, sealing, _, err := initiator.ReadMessage(nil, message)
	check(err)
	return sealing, opening
}

func main() {
	runtime.LockOSThread()
	sealing, opening := pair()
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		var size, repetitions int
		_, err := fmt.Sscan(lines.Text(), &size, &repetitions)
		check(err)
		message := bytes.Repeat([]byte{1}, size)
		sealed, opened := make([]byte, 0, size+16), make([]byte, 0, size)
		start := threadTime()
		for i := 0; i < repetitions; i++ {
			// Reusing buffers is the fastest way that the library's interface allows.
			sealed, err = sealing.Encrypt(sealed[:0], nil, message)
			check(err)
			opened, err = opening.Decrypt(opened[:0], nil, sealed)
			check(err)
		}
		elapsed := threadTime() - start
		if !bytes.Equal(opened, message) {
			panic("the decrypted bytes differ")
		}
		fmt.Println(float64(elapsed) / float64(repetitions))
	}
}
