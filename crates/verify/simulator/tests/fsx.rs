//! Random operations against a model, on the simulated device and on an array: 150 or 300 seeds for
//! each kind of run, of 2,000 operations each. `make soak` runs 20,000 seeds for each kind. The
//! whole engine has its own simulation (`machine`).

mod support;

use nowait_simulator::Profile;

macro_rules! parts {
    ($($name:ident: $profile:ident, $seeds:expr;)*) => {$(
        #[test]
        fn $name() {
            support::run($seeds, 2_000, Profile::$profile);
        }
    )*};
}

parts! {
    a_file_on_the_device_is_the_models_1: Exact, 0..150;
    a_file_on_the_device_is_the_models_2: Exact, 150..300;
    a_file_in_memory_is_the_models: Memory, 0..300;
    what_another_process_wrote_beside_stays: Rival, 0..150;
    a_storm_of_cancellations_loses_and_doubles_nothing: Storm, 0..150;
    a_file_on_a_failing_device_is_the_models_1: Faulty, 0..150;
    a_file_on_a_failing_device_is_the_models_2: Faulty, 150..300;
}
