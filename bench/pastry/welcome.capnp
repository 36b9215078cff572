@0xd3b1c7a95e0f4286;

using Cxx = import "/capnp/c++.capnp";
$Cxx.namespace("overlay");

struct Row {
  whichRow @0 :Int32;
  row @1 :List(Int32);
}

struct WelcomeMessage {
  id @0 :Int32;
  timeSent @1 :Float64;
  rows @2 :List(Row);
  leaves @3 :List(Int32);
}
