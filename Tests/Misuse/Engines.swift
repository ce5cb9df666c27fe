// Inside the package.
// (`Tests/Misuse/run` reads the first line, and compiles this file as part of the package.)
import BLESec
import BLESecChannelCore

//: an engine cannot be stored as an existential, which could be copied
func storeAsExistential<Engine: SecureEngine & ~Copyable>(_ engine: consuming Engine) {
    let _: any SecureEngine = engine  // error: Copyable
}
